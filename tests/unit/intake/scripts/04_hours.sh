#!/bin/bash
#SBATCH --job-name=nightly-eval
#SBATCH --time=12:00:00
#SBATCH --output=logs/%x-%j.out
./evaluate --all
