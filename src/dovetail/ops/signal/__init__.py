"""Signal processing: DFT, STFT, window functions."""
