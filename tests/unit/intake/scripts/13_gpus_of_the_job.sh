#!/bin/bash
#SBATCH -G 4
#SBATCH -c 24
#SBATCH --mem 200G
#SBATCH -t 6:00:00
python -m accelerate.commands.launch --num_processes 4 run.py
