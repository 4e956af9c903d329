#!/bin/bash
#SBATCH --exclude=n[2,4]
#SBATCH --gres=gpu:a100:1
#SBATCH --time=30:00
./measure
