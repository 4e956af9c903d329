#!/bin/bash
#SBATCH -N 4
#SBATCH -n 2
srun ./pair
