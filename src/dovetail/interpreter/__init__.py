"""The interpreter: the rules of operators, run node by node in any array library."""
