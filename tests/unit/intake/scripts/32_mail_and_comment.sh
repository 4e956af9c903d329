#!/bin/bash
#SBATCH --job-name=mails
#SBATCH --mail-type=BEGIN,END,FAIL
#SBATCH --mail-user=ana@example.com
#SBATCH --comment="run for the paper"
#SBATCH --gres=gpu:1
./run
