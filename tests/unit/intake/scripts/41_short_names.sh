#!/bin/bash
#SBATCH --job=abbreviated --ntasks-per-n=4
#SBATCH --parti=gpu --acco=research
./run
