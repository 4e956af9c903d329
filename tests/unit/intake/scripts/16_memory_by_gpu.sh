#!/bin/bash
#SBATCH --job-name=rl
#SBATCH --nodes=2
#SBATCH --gpus-per-node=4
#SBATCH --mem-per-gpu=60G
#SBATCH --time=10:00:00
srun python rollout.py
