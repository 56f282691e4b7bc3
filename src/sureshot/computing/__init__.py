"""The one policy of threads, memory, blocks of work, layout of arrays and state of the process."""
