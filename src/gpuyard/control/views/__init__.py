"""What people see of jobs, nodes and tenants, each as one answer."""
