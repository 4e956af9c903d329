#!/bin/bash
#SBATCH --job-name=exact
#SBATCH --time=0-00:45:30
./exact
