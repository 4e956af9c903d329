#!/bin/bash
#SBATCH --array=0-99%10
#SBATCH --job-name=tiles
#SBATCH --output=/tmp/%u/%x/%A/tile-%4a.out
#SBATCH --error=/tmp/%u/%x/%A/tile-%4a.err
#SBATCH --mem=4G
./tile "$SLURM_ARRAY_TASK_ID"
