"""What a launch consists of while it runs: memory, frames, barriers, copies under way."""
