#!/bin/bash
#SBATCH --nodes=1k
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu
srun ./census
