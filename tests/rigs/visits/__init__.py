"""Those who come into running jobs, the code that lets them in, and how it is installed."""
