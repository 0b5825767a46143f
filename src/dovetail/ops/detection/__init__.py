"""Object detection: non-maximum suppression, proposals, prior boxes, regions of interest."""
