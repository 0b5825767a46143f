"""Fixed sizes become symbols and back: freed sizes are propagated, constants repaired, samples verified."""
