#!/bin/bash
#SBATCH -a 1,3,7-9
#SBATCH -J redo
#SBATCH -t 1:00:00
./redo "$SLURM_ARRAY_TASK_ID"
