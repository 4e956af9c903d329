#!/usr/bin/env bash
#SBATCH --job-name=dgx-node
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --mem=480G
#SBATCH --exclusive
#SBATCH --time=24:00:00
srun python -u pretrain.py
