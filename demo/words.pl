# Counts the words of all files in the given directories and prints the ten most frequent.
use strict;
use warnings;

my %count;
while (defined(my $path = shift)) {
    next if -l $path;
    unshift @ARGV, glob "\Q$path\E/*" if -d $path;
    next unless -f $path && open my $file, '<', $path;
    while (<$file>) {
        $count{lc $1}++ while /(\w+)/g;
    }
}
my @words = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
print join(' ', splice @words, 0, 10), "\n";
