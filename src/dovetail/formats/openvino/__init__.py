"""OpenVINO IR: ``model.xml`` and ``model.bin``."""
