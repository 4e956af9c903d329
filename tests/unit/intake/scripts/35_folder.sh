#!/bin/bash
#SBATCH --chdir=/tmp
#SBATCH --output=out/%j.txt
#SBATCH --input=/dev/null
pwd
