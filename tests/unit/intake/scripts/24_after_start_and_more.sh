#!/bin/bash
#SBATCH --job-name=watcher
#SBATCH --dependency=after:990006+10,afterany:990007
./watch
