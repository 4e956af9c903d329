#!/bin/bash
#SBATCH --licenses=matlab:2,abaqus
#SBATCH --nice=50
#SBATCH --no-requeue
#SBATCH -t 5
matlab -batch run
