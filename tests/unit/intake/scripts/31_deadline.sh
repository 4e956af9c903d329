#!/bin/bash
#SBATCH --deadline=2031-05-04
#SBATCH --job-name=report
#SBATCH --time=1:00:00
./report
