"""OpenVINO operators that are several of ours, or ours that are several of theirs; a family a module, registered by importing."""
