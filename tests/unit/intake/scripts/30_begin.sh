#!/bin/bash
#SBATCH --begin=2031-05-04T03:02:01
#SBATCH --job-name=later
#SBATCH --time=10
./later
