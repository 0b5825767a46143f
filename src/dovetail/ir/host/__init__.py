"""Services of the process: optional packages, the native core, threads, forks, the garbage collector."""
