#!/bin/bash
#SBATCH --gpus=8
#SBATCH --ntasks-per-gpu=2
#SBATCH --nodes=2
srun ./shared
