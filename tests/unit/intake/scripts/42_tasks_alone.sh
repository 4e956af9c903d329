#!/bin/bash
#SBATCH --ntasks=32
#SBATCH --mem-per-cpu=1G
#SBATCH --time=03:00:00
srun ./mpi
