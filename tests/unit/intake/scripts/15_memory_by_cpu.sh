#!/bin/bash
#SBATCH -n 16
#SBATCH -c 2
#SBATCH --mem-per-cpu=2500M
#SBATCH -t 120
mpirun ./solver
