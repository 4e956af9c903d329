#!/bin/bash
#SBATCH --nodes=3
#SBATCH --ntasks=8
#SBATCH --mem-per-cpu=2G
srun ./uneven
