#!/bin/bash
#SBATCH --job-name=megatron
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=a100:4
#SBATCH --cpus-per-task=12
#SBATCH --mem=400G
#SBATCH --time=3-12
#SBATCH --requeue
#SBATCH --open-mode=append
srun --cpu-bind=none ./launch.sh
