#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=16
#SBATCH --overcommit
#SBATCH --oversubscribe
#SBATCH --spread-job
./many-small
