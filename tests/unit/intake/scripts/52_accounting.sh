#!/bin/bash
#SBATCH --wckey=paper
#SBATCH --acctg-freq=task=15
#SBATCH --profile=none
#SBATCH --propagate=NONE
#SBATCH --time-min=10 --time=20
#SBATCH --kill-on-invalid-dep=yes
#SBATCH --wait-all-nodes=1
#SBATCH --delay-boot=5
#SBATCH --reboot
#SBATCH --no-kill
#SBATCH --verbose
./run
