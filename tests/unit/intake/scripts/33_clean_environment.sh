#!/bin/bash
#SBATCH --export=NONE
#SBATCH --get-user-env=5
#SBATCH --time=5
./clean
