#!/bin/bash
#SBATCH --job-name=sweep
#SBATCH --array=1-10:2%4
#SBATCH --gres=gpu:1
#SBATCH --time=45
#SBATCH --output=sweep_%A_%a.out
python sweep.py --index "$SLURM_ARRAY_TASK_ID"
