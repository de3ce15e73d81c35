"""What every layer uses: checks, randomness, threads, arithmetic on rows."""
