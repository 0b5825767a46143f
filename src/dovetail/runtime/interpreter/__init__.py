"""The interpreter: runs operators' rules node by node in any array library."""
