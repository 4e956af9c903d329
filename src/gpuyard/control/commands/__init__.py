"""What people want: new jobs, wishes about jobs, layouts, configurations."""
