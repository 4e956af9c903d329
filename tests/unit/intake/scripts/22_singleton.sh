#!/bin/bash
#SBATCH --job-name=only-one
#SBATCH --dependency=singleton
#SBATCH --time=20
./refresh-cache
