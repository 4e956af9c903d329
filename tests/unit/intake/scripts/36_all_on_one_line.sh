#!/bin/sh
#SBATCH -N2 -n4 -c2 -t10 -Jtiny --mem=8G
srun hostname
