#!/bin/bash
#SBATCH --job-name=post
#SBATCH --array=1-5
#SBATCH --dependency=aftercorr:990005
./post "$SLURM_ARRAY_TASK_ID"
