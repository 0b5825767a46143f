"""What the process gives: optional packages, the native core, threads, forks, the garbage collector."""
