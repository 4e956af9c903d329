#!/bin/bash
#SBATCH --job-name=warmup
#SBATCH --time=30
python warmup.py
