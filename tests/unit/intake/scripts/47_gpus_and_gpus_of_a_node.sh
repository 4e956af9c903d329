#!/bin/bash
#SBATCH --gpus=16
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-gpu=6
srun ./train
