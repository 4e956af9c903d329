#!/bin/bash
#SBATCH --job-name=early
set -euo pipefail
#SBATCH --job-name=late
#SBATCH --nodes=4
./run
