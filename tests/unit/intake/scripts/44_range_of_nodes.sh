#!/bin/bash
#SBATCH --nodes=2-4
#SBATCH --gres=gpu:8
#SBATCH --time=30
#SBATCH --use-min-nodes
srun ./elastic
