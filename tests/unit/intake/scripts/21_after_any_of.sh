#!/bin/bash
#SBATCH -J cleanup
#SBATCH -d afterok:990003?afternotok:990004
./cleanup
