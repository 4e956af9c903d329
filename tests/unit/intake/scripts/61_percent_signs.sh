#!/bin/bash
#SBATCH --job-name=percent
#SBATCH --output=/tmp/%%%x.%6j.%u.out
#SBATCH --array=3
./run
