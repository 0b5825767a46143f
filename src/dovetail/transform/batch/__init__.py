"""Parts of rebatch: requests, propagation of freed sizes, repairs by operator, and the comparison of samples."""
