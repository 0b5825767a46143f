"""If and Loop, and their gradients."""
