"""The operators, one package for each family. The registry imports the module of an operator at its first use."""
