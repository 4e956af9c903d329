#!/bin/bash
#SBATCH --job-name=stage2
#SBATCH --dependency=afterok:990001:990002
#SBATCH --time=1:00:00
./stage2
